// Airflow shows this page in a frame. Two things need its window: the theme that the user chose there, and links, which
// would otherwise open Airflow inside itself (and which other sites refuse). The page works without this script.
"use strict";
(() => {
  let above = null;
  try {
    above = window.parent !== window && window.parent.document ? window.parent.document : null;
  } catch { /* a frame of another site: the policy forbids it */ }
  if (!above) return;
  const theme = () => {
    document.documentElement.dataset.theme = above.documentElement.classList.contains("dark") ? "dark" : "light";
  };
  theme();
  new MutationObserver(theme).observe(above.documentElement, { attributeFilter: ["class"] });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href]");
    if (!link || event.defaultPrevented || event.button || link.getAttribute("href").startsWith("#")) return;
    event.preventDefault();
    const outer = above.createElement("a");
    outer.href = link.href;
    if (event.ctrlKey || event.metaKey || event.shiftKey || link.origin !== window.location.origin) {
      outer.target = "_blank";
      outer.rel = "noopener noreferrer";
    }
    above.body.append(outer);
    outer.click();
    outer.remove();
  });
})();

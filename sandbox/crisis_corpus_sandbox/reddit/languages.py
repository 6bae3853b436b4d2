"""Provide captions in other languages, genuine and at least five words long, so that a language gate can judge them."""

from __future__ import annotations

CAPTIONS: dict[str, tuple[str, ...]] = {
    "es": (
        "cuando suena el despertador y todavía tienes mucho sueño",
        "mi gato me mira mientras lloro por el trabajo del lunes",
        "nadie me preguntó por qué estoy tan cansado esta semana",
    ),
    "fr": (
        "quand le réveil sonne et que tu veux encore dormir",
        "mon chat me regarde pendant que je cherche mes clés",
        "personne ne m'a demandé pourquoi je suis si fatigué",
    ),
    "de": (
        "wenn der Wecker klingelt und du noch müde bist",
        "niemand hat mich gefragt warum ich heute so still bin",
        "meine Katze schaut mir zu während ich die Rechnung suche",
    ),
    "it": (
        "quando suona la sveglia e vorrei soltanto dormire ancora",
        "il mio gatto mi guarda mentre cerco le chiavi di casa",
        "nessuno mi ha chiesto perché sono così stanco oggi",
    ),
    "pt": (
        "quando o despertador toca e você ainda está com muito sono",
        "ninguém me perguntou por que estou tão cansado hoje",
        "meu gato olha para mim enquanto procuro as chaves",
    ),
    "nl": (
        "wanneer de wekker gaat en je nog lang niet wakker bent",
        "niemand vroeg mij waarom ik vandaag zo stil ben",
        "mijn kat kijkt toe terwijl ik mijn sleutels zoek",
    ),
    "pl": (
        "kiedy dzwoni budzik a ty nadal chcesz spać",
        "nikt mnie nie zapytał dlaczego jestem dzisiaj taki zmęczony",
        "mój kot patrzy na mnie kiedy szukam kluczy do domu",
    ),
    "sv": (
        "när klockan ringer och du fortfarande vill sova vidare",
        "ingen frågade mig varför jag är så trött idag",
        "min katt tittar på mig medan jag letar efter nycklarna",
    ),
    "tr": (
        "çalar saat çaldığında hala uyumak istediğin o sabah",
        "bugün neden bu kadar yorgun olduğumu kimse sormadı",
        "anahtarlarımı ararken kedim sessizce bana bakıyor",
    ),
    "ru": (
        "когда звонит будильник а ты всё ещё хочешь спать",
        "никто не спросил почему я сегодня такой уставший",
        "мой кот смотрит на меня пока я ищу ключи",
    ),
    "uk": ("коли дзвонить будильник а ти все ще хочеш спати", "ніхто не запитав чому я сьогодні такий втомлений"),
    "bg": ("когато будилникът звъни а ти още искаш да спиш", "никой не ме попита защо днес съм толкова уморен"),
}


def caption(number: int) -> tuple[str, str]:
    """Return the language and caption for a number; consecutive numbers go through all languages, then captions."""
    languages = sorted(CAPTIONS)
    language = languages[number % len(languages)]
    return language, CAPTIONS[language][number // len(languages) % len(CAPTIONS[language])]

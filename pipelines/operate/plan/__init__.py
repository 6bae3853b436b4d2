"""Plan before anything is sent or computed: what a corpus's requests cost, and what a paper's profile needs."""

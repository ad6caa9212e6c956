// Weights of the search: those of Sphinx, but what changed once and source come after all pages.
const Scorer = {
  score: ([page, , , , score]) => (/^(CHANGELOG|_modules\/)/.test(page) ? score - 100 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

// Weights of the search: those of Sphinx, but what changed once and source come after all pages. A `var`, as some themes
// load it after the default of Sphinx.
var Scorer = {
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

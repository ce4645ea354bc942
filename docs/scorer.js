// Pages of start and how-to come first: long references have every word.
var Scorer = {
  score: ([page, , , , score]) => score + (/^(start|how-to)\//.test(page) ? 20 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

// Pages of start and how-to come first, as long references have every word; so do titles that have the words typed.
var Scorer = {
  score: ([page, title, , , score]) => {
    const words = (text) => text.toLowerCase().match(/\w+/g) ?? [];
    const typed = words(new URLSearchParams(location.search).get("q") ?? "");
    const told = typed.filter((word) => words(title).includes(word)).length;
    return score + (/^(start|how-to)\//.test(page) ? 20 : 0) + (told ? (20 * told) / typed.length : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

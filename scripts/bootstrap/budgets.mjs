/** How long people wait at most, on two cores that do nothing else. Printed next to what a run took; nothing fails by time. */
export const budgetsMs = { test: 300_000, check: 420_000, checkOfPackage: 20_000 };

/** A row of the table that `gates budgets` begins. */
export function budgetRow(name, timeMs, budgetMs) {
  const verdict = timeMs <= budgetMs ? 'ok  ' : 'OVER';
  const [value, limit] = [Math.ceil(timeMs / 1000), budgetMs / 1000].map(String);
  return `  ${verdict}   ${name.padEnd(31)} ${value.padStart(7)} of ${limit.padStart(6)}  on 2 cores`;
}

export function budgetText(budgetMs) {
  return `budget ${budgetMs / 1000} s on 2 cores`;
}

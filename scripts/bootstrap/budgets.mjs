/** How long people wait at most, on two cores that do nothing else. Printed beside what a run took; nothing fails by time. */
export const budgetsMs = { test: 300_000, check: 420_000, checkOfPackage: 20_000 };

export function budgetText(budgetMs) {
  return `budget ${budgetMs / 1000} s on 2 cores`;
}

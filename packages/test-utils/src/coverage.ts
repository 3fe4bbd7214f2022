/**
 * Whether tests run every combination (`pnpm test:full`) or only those that can find a distinct defect (`npm test`).
 */
export const testCoverage: 'full' | 'pairwise' = process.env['WINNOW_TEST'] === 'full' ? 'full' : 'pairwise';

/**
 * All items under `pnpm test:full`, else every `step`-th from `first` on: for combinations that repeat the same code.
 */
export function sampled<Item>(items: readonly Item[], step: number, first = 0): readonly Item[] {
  return testCoverage === 'full' ? items : items.filter((_, index) => index % step === first);
}

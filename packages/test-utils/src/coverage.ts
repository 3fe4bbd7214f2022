/** Whether tests run every combination (`pnpm test:full`) or those that can find a defect of their own (`npm test`). */
export const testCoverage: 'full' | 'pairwise' = process.env['WINNOW_TEST'] === 'full' ? 'full' : 'pairwise';

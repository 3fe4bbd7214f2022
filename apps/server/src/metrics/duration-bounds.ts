/** Seconds: from one cached token to a long document on a small computer. */
export const durationBounds = [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300];

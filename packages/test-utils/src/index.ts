export { repoRoot, sharedDataPath } from './shared-data.js';
export { serveBytes, type TestServer } from './serve-bytes.js';
export { testCoverage } from './coverage.js';

export { repoRoot, sharedDataPath } from './shared-data.js';

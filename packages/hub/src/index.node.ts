export { listCachedRepos, removeCachedRepo, type CachedRepo, type CacheOptions } from './cached-repos.node.js';
export { downloadRepo, type DownloadedRepo, type DownloadRepoOptions } from './download-repo.node.js';
export type { DownloadOptions, DownloadProgress } from './download/download.js';
export { HubError, type HubErrorReason } from './download/error.js';
export { localFolder } from './local-folder.node.js';

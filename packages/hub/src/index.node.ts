export { listCachedRepos, removeCachedRepo, type CachedRepo, type CacheOptions } from './cached-repos.node.js';
export {
  downloadRepo,
  type DownloadedRepo,
  type DownloadProgress,
  type DownloadRepoOptions,
} from './download-repo.node.js';
export { HubError, type HubErrorReason } from './hub/error.node.js';
export { localFolder } from './local-folder.node.js';

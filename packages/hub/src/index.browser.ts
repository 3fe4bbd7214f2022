export type { DownloadOptions, DownloadProgress } from './download/download.js';
export { HubError, type HubErrorReason } from './download/error.js';
export {
  downloadedBytes,
  downloadRepo,
  type DownloadedBytes,
  type DownloadedRepo,
  type DownloadRepoOptions,
} from './download-repo.browser.js';
export type { OpfsFile, OpfsFolder } from './opfs-store.browser.js';

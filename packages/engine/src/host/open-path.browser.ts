/** Paths of a page's server: Turbopack gives the URLs of assets as such paths. */
import { refusal, type OpenPath } from '../load/open-location.js';

interface Page {
  readonly location?: { readonly origin: string };
}

/** @throws {ArgumentError} for what does not begin with `/`, and where there is no page */
export const openPath: OpenPath = (location) => {
  const text = String(location);
  const { location: page } = globalThis as Page;
  if (!text.startsWith('/') || page === undefined) throw refusal('an http(s) URL, a Blob or files', text);
  return new URL(text, page.origin).href;
};

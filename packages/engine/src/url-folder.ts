/** A Hugging Face folder behind a URL, file by file. */
import { httpSource } from '@winnow/bytes';
import type { HubFiles } from '@winnow/hub';
import { IoError } from '@winnow/tensor';

/** @param base a URL that ends in `/`. A server cannot be asked for a list, so `list` is empty */
export function urlFolder(base: URL, request: typeof fetch): HubFiles {
  return {
    name: base.href,
    list: () => Promise.resolve([]),
    async has(name): Promise<boolean> {
      const url = new URL(name, base);
      const response = await request(url, { method: 'HEAD' });
      if (response.ok) return true;
      if (response.status === 404) return false;
      throw new IoError({ source: url.href, message: `expected an answer of 200 or 404, got ${response.status}` });
    },
    open: (name) => httpSource(new URL(name, base), { fetch: request }),
  };
}

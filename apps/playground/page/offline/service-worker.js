/**
 * Keeps the static site for visits without a network, and gives it the headers that threads need where its host sends
 * none. The build replaces the constants.
 */
const cacheName = 'winnow-__VERSION__';
/** Kept when the worker is installed. */
const files = __FILES__;
/** Large files, kept when they are first used. */
const largeFiles = __LARGE_FILES__;

const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));
const isolation = {
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-embedder-policy': 'require-corp',
  'cross-origin-resource-policy': 'same-origin',
};
const urlsOf = (names) => new Set(names.map((name) => new URL(name, worker.registration.scope).href));
const known = urlsOf(files);
const large = urlsOf(largeFiles);

/** A new version waits until no tab shows the old one, which still loads files of its own version. */
async function keep() {
  const cache = await caches.open(cacheName);
  await cache.addAll(files);
}

async function removeOld() {
  const names = await caches.keys();
  const old = names.filter((name) => name.startsWith('winnow-') && name !== cacheName);
  await Promise.all(old.map((name) => caches.delete(name)));
  await worker.clients.claim();
}

async function fetchLarge(cache, url) {
  // whole, also when the page asks for a part: parts cannot be kept
  const response = await fetch(url);
  if (response.ok) await cache.put(url, response.clone());
  return response;
}

async function answer({ url }) {
  const cache = await caches.open(cacheName);
  const response = (await cache.match(url)) ?? (large.has(url) ? await fetchLarge(cache, url) : await fetch(url));
  const { status, statusText, headers, body } = response;
  return new Response(body, { status, statusText, headers: { ...Object.fromEntries(headers), ...isolation } });
}

worker.addEventListener('install', (event) => event.waitUntil(keep()));
worker.addEventListener('activate', (event) => event.waitUntil(removeOld()));
worker.addEventListener('fetch', (event) => {
  const { method, url } = event.request;
  if (method === 'GET' && (known.has(url) || large.has(url))) event.respondWith(answer(event.request));
});

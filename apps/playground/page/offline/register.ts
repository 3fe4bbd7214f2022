/** Registers the service worker of the static site: the site opens without a network, and with threads from the next visit. */
export async function registerOffline(): Promise<void> {
  if (!('serviceWorker' in navigator)) return;
  await navigator.serviceWorker.register(new URL('service-worker.js', document.baseURI));
}

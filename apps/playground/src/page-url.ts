/** Where the built page lies inside this package. Reads nothing: a server reads the files. */

/** The folder with `index.html` and `assets`, a `file:` URL: the page for the server that also answers its requests. */
export const pageUrl: URL = new URL('../dist/page/', import.meta.url);

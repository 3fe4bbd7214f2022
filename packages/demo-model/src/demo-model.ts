/** The location of the demo model inside this package. Reads nothing: the engine loads it. */

/**
 * The folder of the demo model in Hugging Face layout (config.json, tokenizer.json, model.safetensors, ...), as a URL
 * that ends in `/`: a `file:` URL in Node, an HTTP URL where the package is served to a browser.
 */
export const demoModelUrl: URL = new URL('../model/', import.meta.url);

/** The location of the demo model inside this package. Reads nothing: the engine loads it. */

/**
 * The file of the demo model: safetensors whose header also carries its settings and its tokenizer. A `file:` URL in
 * Node, Deno and Bun; in a bundle, the URL of the asset that the bundler emits.
 */
export const demoModelUrl: URL = new URL('./model/model.safetensors', import.meta.url);

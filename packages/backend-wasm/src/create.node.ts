import { createBackend, type WasmBackend, type WasmBackendOptions } from './backend.js';
import type { WasmHost } from './host.js';
import { createNodeHost } from './host.node.js';

/** As `WasmBackendOptions`, on the workers of Node by default. */
export interface CreateWasmBackendOptions extends Omit<WasmBackendOptions, 'host'> {
  readonly host?: WasmHost;
}

/**
 * Creates the WebAssembly backend: compiles the kernels and starts the workers.
 * @throws {ArgumentError} for options that make no sense
 * @throws {BackendError} when the engine lacks what an option demands
 */
export function createWasmBackend(options: CreateWasmBackendOptions = {}): Promise<WasmBackend> {
  return createBackend({ ...options, host: options.host ?? createNodeHost() });
}

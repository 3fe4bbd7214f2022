import { createHost } from '#host';
import type { WasmBackendOptions } from './backend-options.js';
import { createBackend, type WasmBackend } from './backend.js';
import type { WasmHost } from './host.js';
import { measurePeaksOn, type MachinePeaks, type PeakOptions } from './measure-peaks.js';

/** As `WasmBackendOptions`, on the workers of Node or of the browser by default. */
export interface CreateWasmBackendOptions extends Omit<WasmBackendOptions, 'host'> {
  readonly host?: WasmHost;
}

/**
 * Creates the WebAssembly backend: compiles the kernels and starts the workers.
 * @throws {ArgumentError} for options that make no sense
 * @throws {BackendError} when the engine lacks what an option demands
 */
export function createWasmBackend(options: CreateWasmBackendOptions = {}): Promise<WasmBackend> {
  return createBackend({ ...options, host: options.host ?? createHost() });
}

/** As `PeakOptions`, on the workers of Node or of the browser by default. */
export interface MeasurePeaksOptions extends PeakOptions {
  readonly host?: WasmHost;
}

/**
 * Measures what this machine can do with the backend's kernels and workers: reading memory, arithmetic in f32 and with
 * 8-bit integers. Takes about a quarter of a second and 128 MiB, unless told otherwise; run nothing else meanwhile.
 * @throws {ArgumentError} for options that make no sense
 * @throws {CapacityError} when there is no room for the memory to read
 */
export function measurePeaks({ host, ...options }: MeasurePeaksOptions = {}): Promise<MachinePeaks> {
  return measurePeaksOn(host ?? createHost(), options);
}

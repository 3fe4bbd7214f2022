import { createHost } from '#host';
import type { WasmHost } from '../host/host.js';
import type { WasmBackendOptions } from './backend-options.js';
import { createBackend, type WasmBackend } from './backend.js';
import { measurePeaksOn, type MachinePeaks, type PeakOptions } from './measure-peaks.js';

/** As `WasmBackendOptions`, with the workers of Node or of the browser by default. */
export interface CreateWasmBackendOptions extends Omit<WasmBackendOptions, 'host'> {
  readonly host?: WasmHost;
}

/**
 * Creates the WebAssembly backend: compiles the kernels and starts the workers.
 * @throws {ArgumentError} for invalid options
 * @throws {BackendError} when the JavaScript engine lacks a required feature
 */
export function createWasmBackend(options: CreateWasmBackendOptions = {}): Promise<WasmBackend> {
  return createBackend({ ...options, host: options.host ?? createHost() });
}

/** As `PeakOptions`, with the workers of Node or of the browser by default. */
export interface MeasurePeaksOptions extends PeakOptions {
  readonly host?: WasmHost;
}

/**
 * Measures the machine's peaks with the backend's kernels and workers: memory bandwidth, f32 and int8 arithmetic. Takes
 * about a quarter of a second and 128 MiB by default; run nothing else meanwhile.
 * @throws {ArgumentError} for invalid options
 * @throws {CapacityError} when the memory to read cannot be allocated
 */
export function measurePeaks({ host, ...options }: MeasurePeaksOptions = {}): Promise<MachinePeaks> {
  return measurePeaksOn(host ?? createHost(), options);
}

import { createHost } from '#host';
import type { WasmHost } from '../host/host.js';
import { wasmBackendNames, type WasmBackendOptions } from './backend-options.js';
import { createBackend, type WasmBackend } from './backend.js';
import { measurePeaksOn, type MachinePeaks, type PeakOptions } from './measure-peaks.js';
import { checkOptions, type OptionNames } from '@winnow/tensor';

/** As `WasmBackendOptions`, with the workers of Node or of the browser by default. */
export interface CreateWasmBackendOptions extends Omit<WasmBackendOptions, 'host'> {
  readonly host?: WasmHost;
}

/**
 * Creates the WebAssembly backend: compiles the kernels and starts the workers.
 * @throws {ArgumentError} for invalid options
 * @throws {BackendError} when the JavaScript engine lacks a required feature
 */
export async function createWasmBackend(options: CreateWasmBackendOptions = {}): Promise<WasmBackend> {
  checkOptions(options, wasmBackendNames);
  return createBackend(options, options.host ?? createHost());
}

/** As `PeakOptions`, with the workers of Node or of the browser by default. */
export interface MeasurePeaksOptions extends PeakOptions {
  readonly host?: WasmHost;
}

const measurePeaksNames: OptionNames<MeasurePeaksOptions> = {
  host: true,
  numThreads: true,
  memoryBytes: true,
  probeMs: true,
};

/**
 * Measures the machine's peaks with the backend's kernels and workers: memory bandwidth, f32 and int8 arithmetic. Takes
 * about a quarter of a second and 128 MiB by default; run nothing else meanwhile.
 * @throws {ArgumentError} for invalid options
 * @throws {CapacityError} when the memory to read cannot be allocated
 */
export async function measurePeaks(options: MeasurePeaksOptions = {}): Promise<MachinePeaks> {
  checkOptions(options, measurePeaksNames);
  const { host = createHost(), ...peakOptions } = options;
  return measurePeaksOn(host, peakOptions);
}

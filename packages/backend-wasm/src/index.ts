export type { WasmBackend } from './backend.js';
export { breakEvenRatio } from './break-even.js';
export { createWasmBackend, measurePeaks, type CreateWasmBackendOptions, type MeasurePeaksOptions } from './create.js';
export type { WasmHost, WorkerEvents, WorkerHandle, WorkerStart } from './host.js';
export type { MachinePeaks, PeakOptions } from './measure-peaks.js';
export type { Variant, WasmMemory, WasmModule } from './web-assembly.js';

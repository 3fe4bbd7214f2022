export { createWasmBackend, type WasmBackend } from './backend/backend.js';
export type { CreateWasmBackendOptions } from './backend/backend-options.js';
export type { WasmHost, WorkerEvents, WorkerHandle, WorkerStart } from './host/host.js';
export {
  measurePeaks,
  type MachinePeaks,
  type MeasurePeaksOptions,
  type PeakOptions,
} from './backend/measure-peaks.js';
export type { Variant, WasmMemory, WasmModule } from './host/web-assembly.js';

export type { WasmBackend } from './backend/backend.js';
export {
  createWasmBackend,
  measurePeaks,
  type CreateWasmBackendOptions,
  type MeasurePeaksOptions,
} from './backend/create.js';
export type { WasmHost, WorkerEvents, WorkerHandle, WorkerStart } from './host/host.js';
export type { MachinePeaks, PeakOptions } from './backend/measure-peaks.js';
export type { Variant, WasmMemory, WasmModule } from './host/web-assembly.js';

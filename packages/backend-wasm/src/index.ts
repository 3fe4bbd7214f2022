export type { WasmBackend } from './backend.js';
export { createWasmBackend, type CreateWasmBackendOptions } from './create.browser.js';
export type { WasmHost, WorkerEvents, WorkerHandle, WorkerStart } from './host.js';
export type { Variant, WasmMemory, WasmModule } from './web-assembly.js';

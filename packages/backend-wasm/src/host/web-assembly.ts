/** The part of the WebAssembly API that this package uses; TypeScript declares it for browsers only. */
import type { NativeAttachment, NativeKernels } from '@winnow/native';
import { BackendError, bytesOfBase64, DeviceLostError } from '@winnow/tensor';
import { relaxedModule, simdModule } from '../kernels/kernels.generated.js';
import { controlWords, heapBase, pageBytes } from '../kernels/layout.generated.js';

/** A compiled module: opaque, can be posted to workers. */
export type WasmModule = object;

export interface WasmMemory {
  readonly buffer: ArrayBuffer | SharedArrayBuffer;
  grow(pages: number): number;
}

/** Functions that the host calls on its own thread. */
export interface WasmExports {
  runAlone(): void;
  measureScratch(job: number, entry: number, to: number): void;
  phaseBarrier(): void;
}

/** The compiled kernels, and native ones that replace some of them. */
export interface Kernels {
  readonly module: WasmModule;
  readonly native?: NativeKernels | undefined;
}

interface WasmApi {
  readonly Memory: new (options: { initial: number; maximum: number; shared: boolean }) => WasmMemory;
  readonly Instance: new (module: WasmModule, imports: object) => { readonly exports: WasmExports };
  compile(bytes: Uint8Array): Promise<WasmModule>;
  validate(bytes: Uint8Array): boolean;
}

const { WebAssembly: api } = globalThis as unknown as { readonly WebAssembly: WasmApi };

export type Variant = 'simd' | 'relaxed-simd';

/** Whether memory can be shared with workers: false in pages that are not cross-origin isolated. */
export function canShareMemory(): boolean {
  return typeof SharedArrayBuffer === 'function';
}

/** `i32x4.relaxed_trunc_f32x4_s` of a constant: a module that is valid only with relaxed SIMD. */
const relaxedProbe = Uint8Array.of(
  ...[0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0],
  ...[10, 15, 1, 13, 0, 65, 1, 253, 15, 65, 2, 253, 15, 253, 128, 2, 11],
);

export function supportsRelaxedSimd(): boolean {
  return api.validate(relaxedProbe);
}

/** Compiled modules by variant, shared by all backends, so that optimized code is reused. */
const modules = new Map<string, Promise<WasmModule>>();

/**
 * @param isShared whether the module imports a shared memory; the flag is one byte of its import section
 * @throws {BackendError} when the host does not allow it
 */
export function compileKernels(variant: Variant, isShared: boolean): Promise<WasmModule> {
  const key = `${variant} ${isShared}`;
  let module = modules.get(key);
  if (module === undefined) {
    const bytes = bytesOfBase64(variant === 'simd' ? simdModule : relaxedModule);
    if (!isShared) bytes[memoryFlags(bytes)] = 1;
    module = api.compile(bytes).catch((cause: unknown) => {
      const reason = cause instanceof Error ? cause.message : String(cause);
      const message = `the kernels cannot be compiled (a Content-Security-Policy needs script-src 'wasm-unsafe-eval'): ${reason}`;
      throw new BackendError({ backend: 'wasm', message }, { cause });
    });
    modules.set(key, module);
  }
  return module;
}

/** Offset of the limits flags of the import `env.memory`: 3 is shared with a maximum, 1 is with a maximum. */
export function memoryFlags(bytes: Uint8Array): number {
  const wanted = [3, ...'env'].map((c) => (typeof c === 'number' ? c : c.charCodeAt(0)));
  wanted.push(6, ...[...'memory'].map((c) => c.charCodeAt(0)), 2, 3);
  for (let at = 0; at + wanted.length <= bytes.length; at++) {
    if (wanted.every((byte, i) => bytes[at + i] === byte)) return at + wanted.length - 1;
  }
  return -1;
}

export function createMemory(maxBytes: number, isShared: boolean): WasmMemory {
  const maximum = Math.floor(maxBytes / pageBytes);
  // growing an unshared memory detaches every view of it, so it is created at its maximum size
  return new api.Memory({ initial: isShared ? heapBase / pageBytes : maximum, maximum, shared: isShared });
}

/** Creates an instance. If native kernels cannot be attached to it, every thread uses the kernels of the module. */
export function instantiate({ module, native }: Kernels, memory: WasmMemory, now: () => number): WasmExports {
  const attached = attachNative(native, memory);
  const nativeKernel = attached?.run ?? (() => false);
  const imports = { env: { memory }, index: { now, jobDone: () => undefined, nativeKernel } };
  const { exports } = new api.Instance(module, imports);
  try {
    attached?.connect(exports.phaseBarrier);
  } catch {
    turnNativeOff(memory);
  }
  return exports;
}

/** Attaches native kernels to a memory; `undefined` without native kernels, or when the addon throws. */
export function attachNative(native: NativeKernels | undefined, memory: WasmMemory): NativeAttachment | undefined {
  try {
    return native?.attach(new Uint8Array(memory.buffer));
  } catch {
    turnNativeOff(memory);
    return undefined;
  }
}

function turnNativeOff({ buffer }: WasmMemory): void {
  Atomics.store(new Int32Array(buffer), controlWords.nativeOff / 4, 1);
}

/** Whether no thread of a memory uses native kernels, because one of them cannot. */
export function isNativeOff({ buffer }: WasmMemory): boolean {
  return Atomics.load(new Int32Array(buffer), controlWords.nativeOff / 4) !== 0;
}

/** The error for a kernel that threw on the calling thread. With native kernels the device is lost: a new one can run without them. */
export function failureOf({ native }: Kernels, cause: unknown): BackendError | DeviceLostError {
  if (native !== undefined) {
    return new DeviceLostError({ backend: 'wasm', reason: 'a kernel failed, perhaps a native one' }, { cause });
  }
  const message = 'a kernel trapped, which is a bug in this backend';
  return new BackendError({ backend: 'wasm', message }, { cause });
}

/** What a loaded model owns: backend, buffers, prepared programs, open files. */
import { createWasmBackend } from '@winnow/backend-wasm';
import type { EmbedderDescription } from '@winnow/models';
import type { Backend, BufferHandle, Executable, Program } from '@winnow/ops';
import { ReleasedError } from '@winnow/tensor';
import { DeviceRecovery } from '../memory/device-recovery.js';
import { fillBuffers, loadBuffers, type LoadProgress } from '../memory/load-buffers.js';
import { NonFiniteSearch } from '../memory/non-finite-search.js';
import { ReplaceableDevice } from '../memory/replaceable-device.js';
import type { ReportEvent } from '../metrics/events.js';
import { openFeedForward, type FeedForwardRuntime } from '../weight-offload/feed-forward-runtime.js';
import type { MemoryOptions } from '../weight-offload/options.js';
import type { FeedForwardParts } from '../weight-offload/parts.js';
import type { OpenedModel } from './opened-model.js';
import type { BackendOptions } from './options.js';

/** The options of a load that say how its resources are made. */
interface ResourceOptions extends BackendOptions {
  readonly memory?: number | MemoryOptions;
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: LoadProgress) => void;
}

/** The backend that loads a model when none is passed in. */
export async function createOwnBackend(
  options: BackendOptions,
  native: BackendOptions['native'] = options.native,
): Promise<Backend> {
  const { createBackend, threads, activations } = options;
  return createBackend?.() ?? createWasmBackend({ numThreads: threads, activations, native });
}

export class ModelResources {
  readonly opened: OpenedModel;
  readonly backend: Backend;
  readonly #options: ResourceOptions;
  /** The device of the backend, if the model owns it. */
  readonly #device: ReplaceableDevice | undefined;
  #isFileOpen = true;
  #buffers: ReadonlyMap<string, BufferHandle> = new Map();
  readonly #executables = new Map<Program, Executable>();
  #feedForward: FeedForwardRuntime | undefined;

  private constructor(opened: OpenedModel, options: ResourceOptions, backend: Backend, device?: ReplaceableDevice) {
    this.opened = opened;
    this.#options = options;
    this.backend = backend;
    this.#device = device;
  }

  /** Takes ownership of an open model: it is closed when creating the backend fails, and by `release`. */
  static async open(opened: OpenedModel, options: ResourceOptions): Promise<ModelResources> {
    if (options.backend !== undefined) return new ModelResources(opened, options, options.backend);
    try {
      // the replacement uses WebAssembly alone, which is safe whatever killed the threads of the first backend
      const createNext = (): Promise<Backend> => createOwnBackend(options, false);
      const device = await ReplaceableDevice.create(() => createOwnBackend(options), createNext);
      return new ModelResources(opened, options, device.backend, device);
    } catch (error) {
      await opened.close();
      throw error;
    }
  }

  get buffers(): ReadonlyMap<string, BufferHandle> {
    return this.#buffers;
  }

  /** The prepared programs, in the order of `prepare`. */
  get executables(): ReadonlyMap<Program, Executable> {
    return this.#executables;
  }

  get feedForward(): FeedForwardRuntime | undefined {
    return this.#feedForward;
  }

  /** Loads weights, constants and an empty cache into the backend's memory. */
  async upload(
    description: EmbedderDescription,
    programs: readonly Program[],
  ): Promise<ReadonlyMap<string, BufferHandle>> {
    this.#buffers = await loadBuffers(this.backend, description, programs, this.#options);
    return this.#buffers;
  }

  /** Whether a lost device can be replaced: then the file stays open. */
  get isReplaceable(): boolean {
    return this.#device !== undefined;
  }

  /**
   * Recovery from the loss of the device, if the model owns it: a new device with the same weights and programs and an
   * empty cache.
   * @param checkWeights throws when the reloaded weights differ
   */
  deviceRecovery(
    description: EmbedderDescription,
    checkWeights: () => Promise<void>,
    report: ReportEvent,
  ): DeviceRecovery {
    const device = this.#device;
    const fill = async (): Promise<void> => {
      await fillBuffers(this.backend, description, [...this.#executables.keys()], this.#buffers);
      await checkWeights();
      await this.#feedForward?.refill();
    };
    return new DeviceRecovery({ replaceDevice: device && (() => device.replace(fill)), report });
  }

  /** Finds the tensor that a result that is not finite comes from. */
  nonFiniteSearch({ weights }: EmbedderDescription): NonFiniteSearch {
    const { backend } = this;
    return new NonFiniteSearch({
      ...{ backend, weights, buffers: this.#buffers, programs: [...this.#executables.keys()] },
      isFileOpen: () => this.#isFileOpen,
    });
  }

  /**
   * Prepares programs and the runtime of their FFNs, which `release` closes.
   * @param batchInvariant see `PrepareOptions` of backends
   */
  async prepare(
    programs: readonly Program[],
    feedForwardParts: Omit<FeedForwardParts, 'backend' | 'buffers' | 'options'>,
    batchInvariant: boolean,
  ): Promise<void> {
    const { onUnsupported = 'fallback', profile = false, signal } = this.#options;
    const own = { backend: this.backend, buffers: this.#buffers, options: this.#options };
    const feedForward = await openFeedForward({ ...feedForwardParts, ...own });
    this.#feedForward = feedForward;
    for (const program of programs) {
      const executable = await this.backend.prepare(program, {
        buffers: this.#buffers,
        onUnsupported,
        profile,
        batchInvariant,
        ...(signal === undefined ? {} : { signal }),
      });
      this.#executables.set(program, feedForward.wrap(executable));
    }
  }

  /** Closes the model's file before the model is disposed of. */
  async closeFile(): Promise<void> {
    if (!this.#isFileOpen) return;
    this.#isFileOpen = false;
    await this.opened.close();
  }

  /** Releases everything. No step may run. */
  async release(): Promise<void> {
    try {
      await this.#feedForward?.close();
    } finally {
      await this.closeFile();
      await this.#free();
    }
  }

  async #free(): Promise<void> {
    try {
      for (const executable of this.#executables.values()) await executable.dispose();
      for (const buffer of this.#buffers.values()) this.backend.free(buffer);
    } catch (error) {
      if (!(error instanceof ReleasedError)) throw error; // the backend was disposed of first and freed everything
    }
    await this.#device?.dispose();
  }
}

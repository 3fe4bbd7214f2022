/**
 * A backend whose device can be replaced when it is lost. Handles and executables of the facade stay valid: they move
 * to memory and programs of the new device, whose contents the caller restores.
 */
import type { Backend, BufferHandle, Executable, PrepareOptions, Program } from '@winnow/ops';
import { DeviceLostError, ReleasedError } from '@winnow/tensor';

type AllocateRequest = Parameters<Backend['allocate']>[0];

interface DeviceBuffer extends BufferHandle {
  readonly request: AllocateRequest;
  /** On the current device. */
  inner: BufferHandle;
}

interface DeviceExecutable {
  readonly program: Program;
  readonly options: PrepareOptions;
  /** On the current device, once it is prepared. */
  inner?: Executable;
}

/** How many devices in a row may be lost before one has been filled. */
const maxReplacements = 3;

/** A device that could not be filled counts as lost: the next request tries another one. */
function unfilled(backend: string, cause: unknown): DeviceLostError {
  const reason = `its replacement could not be filled: ${(cause as Error).message}`;
  return new DeviceLostError({ backend, reason }, { cause });
}

export class ReplaceableDevice {
  /** The backend that programs and buffers use. It stays the same when the device behind it changes. */
  readonly backend: Backend;
  readonly #createNext: () => Promise<Backend>;
  readonly #buffers = new Set<DeviceBuffer>();
  readonly #executables = new Set<DeviceExecutable>();
  #current: Backend;
  #failure: DeviceLostError | undefined;

  private constructor(first: Backend, createNext: () => Promise<Backend>) {
    this.#createNext = createNext;
    this.#current = first;
    this.backend = this.#facade(first);
    this.#watch(first);
  }

  /** @param createNext creates what replaces a lost device */
  static async create(
    create: () => Promise<Backend>,
    createNext: () => Promise<Backend> = create,
  ): Promise<ReplaceableDevice> {
    return new ReplaceableDevice(await create(), createNext);
  }

  /**
   * Replaces the lost device: allocates all buffers again, lets `fill` write their contents, and prepares all programs.
   * @throws {DeviceLostError} when new devices are lost as well
   */
  async replace(fill: () => Promise<void>): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      await this.#disposeCurrent();
      this.#current = await this.#createNext();
      this.#failure = undefined;
      this.#watch(this.#current);
      try {
        for (const buffer of this.#buffers) buffer.inner = this.#current.allocate(buffer.request);
        await fill();
        for (const executable of this.#executables) await this.#prepare(executable);
        return;
      } catch (error) {
        this.#failure ??= DeviceLostError.isInstance(error) ? error : unfilled(this.#current.name, error);
        if (!DeviceLostError.isInstance(error) || attempt === maxReplacements) throw error;
      }
    }
  }

  dispose(): Promise<void> {
    return this.#current.dispose();
  }

  #watch(backend: Backend): void {
    void backend.lost.then((failure) => {
      if (this.#current === backend) this.#failure ??= failure;
    });
  }

  /** Disposing of a lost device may fail. */
  async #disposeCurrent(): Promise<void> {
    try {
      await this.#current.dispose();
    } catch (error) {
      if (!DeviceLostError.isInstance(error)) throw error;
    }
  }

  #device(): Backend {
    if (this.#failure !== undefined) throw this.#failure;
    return this.#current;
  }

  async #prepare(executable: DeviceExecutable, signal?: AbortSignal): Promise<Executable> {
    const { program, options } = executable;
    const buffers = new Map([...options.buffers].map(([name, handle]) => [name, this.#inner(handle)]));
    const ends = signal === undefined ? {} : { signal };
    executable.inner = await this.#device().prepare(program, { ...options, ...ends, buffers });
    return executable.inner;
  }

  #inner(handle: BufferHandle): BufferHandle {
    const buffer = handle as DeviceBuffer;
    if (!this.#buffers.has(buffer)) throw new ReleasedError('buffer');
    return buffer.inner;
  }

  #facade({ isBatchInvariant = false, limits }: Backend): Backend {
    const current = (): Backend => this.#current;
    return {
      get name() {
        return current().name;
      },
      get notices() {
        return current().notices ?? [];
      },
      isBatchInvariant,
      limits,
      lost: new Promise(() => undefined), // the device is replaced instead
      supports: (op, description) => this.#current.supports(op, description),
      breakEvenRatio: (dtype, layout) => this.#current.breakEvenRatio(dtype, layout),
      allocate: (request) => {
        const { sizeBytes, usage } = request;
        const buffer: DeviceBuffer = { sizeBytes, usage, request, inner: this.#device().allocate(request) };
        this.#buffers.add(buffer);
        return buffer;
      },
      view: (buffer) => this.#device().view(this.#inner(buffer)),
      write: async (buffer, byteOffset, bytes) => this.#device().write(this.#inner(buffer), byteOffset, bytes),
      read: async (buffer, byteOffset, target) => this.#device().read(this.#inner(buffer), byteOffset, target),
      copy: async (from, fromOffset, to, toOffset, sizeBytes) =>
        this.#device().copy(this.#inner(from), fromOffset, this.#inner(to), toOffset, sizeBytes),
      free: (buffer) => {
        const inner = this.#inner(buffer);
        this.#buffers.delete(buffer as DeviceBuffer);
        if (this.#failure === undefined) this.#current.free(inner);
      },
      prepare: this.#prepareFacade,
      dispose: () => this.#current.dispose(),
    };
  }

  readonly #prepareFacade: Backend['prepare'] = async (program, { signal, ...options }) => {
    const executable: DeviceExecutable = { program, options };
    const { fallbacks } = await this.#prepare(executable, signal);
    const inner = (): Executable => executable.inner as Executable;
    this.#executables.add(executable);
    return {
      program,
      fallbacks,
      run: async (scalars, runOptions) => {
        this.#device();
        await inner().run(scalars, runOptions);
      },
      read: async (output, target) => {
        this.#device();
        await inner().read(output, target);
      },
      profile: () => inner().profile(),
      dispose: async () => {
        this.#executables.delete(executable);
        if (this.#failure === undefined) await inner().dispose();
      },
    };
  };
}

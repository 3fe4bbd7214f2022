/**
 * The memories of a backend. They are filled one after the other, each created when the previous ones are full, so that
 * buffers that are allocated in order of use are grouped by layer.
 */
import type { BufferGroup } from '@winnow/ops';
import { CapacityError, type DeviceLostError } from '@winnow/tensor';
import { isNativeOff } from '../host/web-assembly.js';
import { controlWords, heapBase, pageBytes } from '../kernels/layout.generated.js';
import type { MemoryShard } from './memory-shard.js';

/** @param onDeath called when a worker dies or a native kernel fails */
export type CreateMemory = (maxBytes: number, onDeath: (failure: DeviceLostError) => void) => MemoryShard;

export interface PoolOptions {
  /** Total over all memories. */
  readonly maxBytes: number;
  readonly bytesPerMemory: number;
  /** Bytes that buffers leave free in each memory for programs, if there may be several memories. */
  readonly reservedBytes: number;
}

/** Minimum size of a memory that can hold a program. */
const minBytes = 4 * pageBytes;

/** Free bytes of a memory, apart from a reserve. */
function roomIn({ heap }: MemoryShard, reserve: number): number {
  return heap.availableBytes - reserve;
}

export class MemoryPool {
  readonly #options: PoolOptions;
  readonly #createMemory: CreateMemory;
  readonly #onLost: (failure: DeviceLostError) => void;
  readonly #reservedBytes: number;
  readonly #memories: MemoryShard[] = [];
  readonly #groups = new WeakMap<BufferGroup, MemoryShard>();
  readonly #leaving = new Set<Promise<void>>();
  readonly #first: MemoryShard;
  #failure: DeviceLostError | undefined;
  #newest: MemoryShard; // the memory of the previous buffer

  /** @param onLost called once when workers of a memory die */
  constructor(options: PoolOptions, createMemory: CreateMemory, onLost: (failure: DeviceLostError) => void) {
    this.#options = options;
    this.#createMemory = createMemory;
    this.#onLost = onLost;
    this.#reservedBytes = options.maxBytes > options.bytesPerMemory ? options.reservedBytes : 0;
    this.#first = this.#create(0) as MemoryShard;
    this.#newest = this.#first;
  }

  /** The first memory, which always exists. */
  get first(): MemoryShard {
    return this.#first;
  }
  get numMemories(): number {
    return this.#memories.length;
  }
  /** Number of records that native kernels have computed in the current memories. */
  get numNativeRecords(): number {
    return this.#memories.reduce((sum, { heap }) => sum + heap.words(controlWords.nativeRecords, 1)[0], 0);
  }
  /** Whether a thread of a memory cannot use native kernels. */
  get isNativeOff(): boolean {
    return this.#memories.some(({ heap }) => isNativeOff(heap.memory));
  }
  get usedBytes(): number {
    return this.#memories.reduce((sum, { heap }) => sum + heap.usedBytes, 0);
  }

  /**
   * Finds room for a buffer.
   * @throws {CapacityError}
   */
  place(sizeBytes: number, label: string, group: BufferGroup | undefined): { memory: MemoryShard; address: number } {
    if (this.#failure !== undefined) throw this.#failure;
    const candidates = this.#choose(sizeBytes, group);
    let available = 0;
    for (const memory of candidates) {
      available = Math.max(available, memory.heap.availableBytes);
      const address = memory.heap.tryAllocate(sizeBytes);
      if (address === undefined) continue;
      this.#newest = memory;
      if (group !== undefined) this.#groups.set(group, memory);
      return { memory, address };
    }
    for (const memory of candidates) this.#removeIfEmpty(memory);
    const resource = `WebAssembly memory for ${label}`;
    throw new CapacityError({ resource, needed: sizeBytes, available, unit: 'bytes' });
  }

  /** Frees a region; an empty memory is released, except the first. */
  free(memory: MemoryShard, address: number): void {
    memory.heap.free(address);
    this.#removeIfEmpty(memory);
  }

  async dispose(): Promise<void> {
    await Promise.all([...this.#memories.map(({ runner }) => runner.dispose()), ...this.#leaving]);
  }

  /** Creates a memory that can hold `sizeBytes`, if allowed. */
  #create(sizeBytes: number): MemoryShard | undefined {
    const { maxBytes, bytesPerMemory } = this.#options;
    const left = this.#memories.reduce((sum, memory) => sum - memory.maxBytes, maxBytes);
    const size = Math.floor(Math.min(left, bytesPerMemory) / pageBytes) * pageBytes;
    if (size < Math.max(minBytes, heapBase + sizeBytes)) return undefined;
    const memory = this.#createMemory(size, (cause) => this.#fail(cause));
    this.#memories.push(memory);
    return memory;
  }

  #fail(cause: DeviceLostError): void {
    if (this.#failure === undefined) this.#onLost(cause);
    this.#failure ??= cause;
    for (const { runner } of this.#memories) runner.fail(this.#failure);
  }

  /** The memories to try, starting with one that has room for the buffer and its whole group. */
  #choose(sizeBytes: number, group: BufferGroup | undefined): MemoryShard[] {
    const known = group && this.#groups.get(group);
    const isWhole = group !== undefined && known === undefined;
    const wanted = isWhole ? Math.max(group.sizeBytes, sizeBytes) : sizeBytes;
    const inOrder = [...new Set([...(known === undefined ? [] : [known]), this.#newest, ...this.#memories])];
    const existing = inOrder.filter((memory) => this.#memories.includes(memory));
    const roomy = existing.find((memory) => roomIn(memory, this.#reservedBytes) >= wanted);
    if (roomy !== undefined) return [roomy, ...existing.filter((memory) => memory !== roomy)];
    let created: MemoryShard | undefined;
    try {
      created = this.#create(sizeBytes);
    } catch {
      // the engine cannot allocate another memory
    }
    const byRoom = existing.toSorted((a, b) => roomIn(b, 0) - roomIn(a, 0));
    return created === undefined ? byRoom : [created, ...byRoom];
  }

  #removeIfEmpty(memory: MemoryShard): void {
    const index = this.#memories.indexOf(memory);
    if (memory === this.#first || index < 0 || memory.heap.usedBytes > 0) return;
    this.#memories.splice(index, 1);
    if (this.#newest === memory) this.#newest = this.#memories.at(-1) as MemoryShard;
    const gone = memory.runner.dispose().finally(() => this.#leaving.delete(gone));
    this.#leaving.add(gone);
  }
}

/**
 * The memories of a backend. They are filled one after the other, each created when the ones before are full, so that buffers
 * that come in the order of their use lie layer by layer.
 */
import type { BufferGroup } from '@winnow/ops';
import { CapacityError, type DeviceLostError } from '@winnow/tensor';
import { heapBase, pageBytes } from './layout.generated.js';
import { createShard, type MemoryShard, type ShardOptions } from './memory-shard.js';

export interface MemoryPool {
  /** The memory that is always there. */
  readonly first: MemoryShard;
  readonly numMemories: number;
  readonly usedBytes: number;
  /**
   * Finds room for a buffer.
   * @throws {CapacityError}
   */
  place(sizeBytes: number, label: string, group: BufferGroup | undefined): { memory: MemoryShard; address: number };
  /** Frees a region; a memory that is empty then goes, except the first. */
  free(memory: MemoryShard, address: number): void;
  dispose(): Promise<void>;
}

export interface PoolOptions extends ShardOptions {
  /** Of all memories together. */
  readonly maxBytes: number;
  readonly bytesPerMemory: number;
  /** What buffers leave free in each memory for programs, where there may be several. */
  readonly reservedBytes: number;
  /** Called once when the workers of a memory are gone without having been asked to leave. */
  readonly onLost: (failure: DeviceLostError) => void;
}

/** Below this a memory holds no program. */
const minBytes = 4 * pageBytes;

export function createMemoryPool(options: PoolOptions): MemoryPool {
  const { maxBytes, bytesPerMemory } = options;
  const reservedBytes = maxBytes > bytesPerMemory ? options.reservedBytes : 0;
  const memories: MemoryShard[] = [];
  const groups = new WeakMap<BufferGroup, MemoryShard>();
  const leaving = new Set<Promise<void>>();
  let failure: DeviceLostError | undefined;
  let newest: MemoryShard; // where the buffer before went

  /** A new memory that can hold `sizeBytes`, if there may be one. */
  function create(sizeBytes: number): MemoryShard | undefined {
    const left = memories.reduce((sum, memory) => sum - memory.maxBytes, maxBytes);
    const size = Math.floor(Math.min(left, bytesPerMemory) / pageBytes) * pageBytes;
    if (size < Math.max(minBytes, heapBase + sizeBytes)) return undefined;
    const memory = createShard(size, options, (cause) => {
      if (failure === undefined) options.onLost(cause);
      failure ??= cause;
      for (const { runner } of memories) runner.fail(failure);
    });
    memories.push(memory);
    return memory;
  }

  const roomIn = ({ heap }: MemoryShard, reserve: number): number => heap.availableBytes - reserve;

  /** The memory whose free room is large enough for the buffer and for what belongs to it. */
  function choose(sizeBytes: number, group: BufferGroup | undefined): MemoryShard[] {
    const known = group && groups.get(group);
    const isWhole = group !== undefined && known === undefined;
    const wanted = isWhole ? Math.max(group.sizeBytes, sizeBytes) : sizeBytes;
    const inOrder = [...new Set([...(known === undefined ? [] : [known]), newest, ...memories])];
    const existing = inOrder.filter((memory) => memories.includes(memory));
    const roomy = existing.find((memory) => roomIn(memory, reservedBytes) >= wanted);
    if (roomy !== undefined) return [roomy, ...existing.filter((memory) => memory !== roomy)];
    let created: MemoryShard | undefined;
    try {
      created = create(sizeBytes);
    } catch {
      // the engine has no room for another memory
    }
    const byRoom = existing.toSorted((a, b) => roomIn(b, 0) - roomIn(a, 0));
    return created === undefined ? byRoom : [created, ...byRoom];
  }

  function remove(memory: MemoryShard): void {
    memories.splice(memories.indexOf(memory), 1);
    if (newest === memory) newest = memories.at(-1) as MemoryShard;
    const gone = memory.runner.dispose().finally(() => leaving.delete(gone));
    leaving.add(gone);
  }

  const first = create(0) as MemoryShard;
  newest = first;
  return {
    first,
    get numMemories() {
      return memories.length;
    },
    get usedBytes() {
      return memories.reduce((sum, { heap }) => sum + heap.usedBytes, 0);
    },
    place(sizeBytes, label, group) {
      if (failure !== undefined) throw failure;
      const candidates = choose(sizeBytes, group);
      let available = 0;
      for (const memory of candidates) {
        available = Math.max(available, memory.heap.availableBytes);
        const address = memory.heap.tryAllocate(sizeBytes);
        if (address === undefined) continue;
        newest = memory;
        if (group !== undefined) groups.set(group, memory);
        return { memory, address };
      }
      for (const memory of candidates) if (memory !== first && memory.heap.usedBytes === 0) remove(memory);
      const resource = `WebAssembly memory for ${label}`;
      throw new CapacityError({ resource, needed: sizeBytes, available, unit: 'bytes' });
    },
    free(memory, address) {
      memory.heap.free(address);
      if (memory.heap.usedBytes === 0 && memory !== first && memories.includes(memory)) remove(memory);
    },
    async dispose() {
      await Promise.all([...memories.map(({ runner }) => runner.dispose()), ...leaving]);
    },
  };
}

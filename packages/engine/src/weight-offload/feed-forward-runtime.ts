/** The runtime of sparse or offloaded FFNs; does nothing for other models. */
import type { Executable } from '@winnow/ops';
import { BusyTime } from '../metrics/busy-time.js';
import type { FeedForwardMetrics } from '../metrics/feed-forward.js';
import { openCold, type ColdFiles } from '../memory/cold-files.js';
import { OpenedWeightTiers } from './open.js';
import type { MemoryOptions, WeightHost } from './options.js';
import type { FeedForwardParts } from './parts.js';
import { WeightOffloader } from './offloader.js';

export interface FeedForwardRuntime {
  wrap(executable: Executable): Executable;
  /** `undefined` when all FFNs are dense and in memory. */
  metrics(): FeedForwardMetrics | undefined;
  /** Restores offloaded weights into the slots of a new device. */
  refill(): Promise<void>;
  close(): Promise<void>;
}

export async function openFeedForward(parts: FeedForwardParts): Promise<FeedForwardRuntime> {
  const { tiers, sparse, options, host, now } = parts;
  if (tiers === undefined && sparse === undefined) {
    return {
      wrap: (executable) => executable,
      metrics: () => undefined,
      refill: async () => undefined,
      close: async () => undefined,
    };
  }
  const reads = new BusyTime(now);
  const opened = tiers && (await OpenedWeightTiers.open(parts, tiers, filesOf(options.memory, host), reads));
  const offloader = new WeightOffloader(parts, opened && (() => opened.cache), reads);
  return {
    wrap: (executable) => offloader.wrap(executable),
    metrics: () => offloader.metrics(),
    refill: async () => opened?.refill(),
    close: async () => opened?.close(),
  };
}

function filesOf(memory: number | MemoryOptions | undefined, host: WeightHost): ColdFiles | undefined {
  const folder = typeof memory === 'object' ? memory.folder : undefined;
  if (folder === undefined) return host.temporaryFiles?.();
  return openCold(folder, host.openFolder);
}

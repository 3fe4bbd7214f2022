/**
 * Metrics for autoscalers and gateways: queues of batches, and the load of models under the metric names that these
 * tools know.
 */
import type { QueueInfo } from '@winnow/jobs';
import type { ModelEntry } from '../models/model-entry.js';
import type { ModelRegistry } from '../models/model-registry.js';
import { Observed, type Metric, type Sample } from './metrics-registry.js';

/** Undefined: the store of batches could not be read. */
export type ReadQueues = readonly QueueInfo[] | undefined;

/** Lines of batches by queue, of all servers and workers that share the store. */
export function queueMetrics(queues: ReadQueues): Metric[] {
  const perQueue = (name: string, help: string, read: (info: QueueInfo) => number): Metric =>
    new Observed('gauge', name, help, () => (queues ?? []).map((info): Sample => [{ queue: info.queue }, read(info)]));
  return [
    new Observed('gauge', 'winnow_batch_store_up', 'Whether the store of batches could be read.', () => [
      [{}, queues === undefined ? 0 : 1],
    ]),
    perQueue('winnow_batch_lines_waiting', 'Lines of batches that wait in a queue.', ({ waiting }) => waiting),
    perQueue('winnow_batch_lines_running', 'Lines of batches that a worker answers.', ({ running }) => running),
    perQueue('winnow_batch_workers', 'Workers with running lines of a queue.', ({ workers }) => workers.length),
  ];
}

/** Of each generating model. The three names of vLLM are those that gateways and autoscalers know by default. */
export function loadMetrics(registry: ModelRegistry): Metric[] {
  const perModel = (name: string, label: string, help: string, read: (entry: GenerativeEntry) => number): Metric =>
    new Observed('gauge', name, help, () =>
      registry.entries().flatMap((entry): Sample[] => {
        return entry.kind === 'generative' ? [[{ [label]: entry.id }, read(entry)]] : [];
      }),
    );
  const utilization = ({ model }: GenerativeEntry): number => {
    const { numUsedBlocks, numCachedBlocks, numFreeBlocks } = model.metrics().cache;
    return numUsedBlocks / Math.max(1, numUsedBlocks + numCachedBlocks + numFreeBlocks);
  };
  const kv = 'Share of the KV cache that running sequences use, from 0 to 1; pages that are only cached are free.';
  return [
    perModel('winnow_kv_cache_utilization', 'model', kv, utilization),
    perModel('vllm:num_requests_running', 'model_name', 'Same as winnow_slots_busy.', ({ slots }) => slots.numRunning),
    perModel(
      'vllm:num_requests_waiting',
      'model_name',
      'Same as winnow_requests_queued.',
      ({ slots }) => slots.numQueued,
    ),
    perModel('vllm:kv_cache_usage_perc', 'model_name', 'Same as winnow_kv_cache_utilization.', utilization),
  ];
}

type GenerativeEntry = Extract<ModelEntry, { readonly kind: 'generative' }>;

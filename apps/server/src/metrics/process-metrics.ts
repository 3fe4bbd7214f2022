import { Observed, type Metric } from './metrics-registry.js';

export function processMetrics(): Metric[] {
  return [
    new Observed('gauge', 'process_resident_memory_bytes', 'Resident memory of the process.', () => [
      [{}, process.memoryUsage.rss()],
    ]),
    new Observed('gauge', 'process_heap_bytes', 'JavaScript heap in use.', () => [
      [{}, process.memoryUsage().heapUsed],
    ]),
  ];
}

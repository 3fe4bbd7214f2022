/** What the routes of one server share. */
import type { ModelRegistry } from './model-registry.js';
import type { ServerLimits } from './options.js';
import type { ServerMetrics } from './server-metrics.js';

export interface ServerContext {
  readonly registry: ModelRegistry;
  readonly metrics: ServerMetrics;
  readonly limits: Required<ServerLimits>;
  /** Aborted when running requests are to end. */
  readonly shutdown: AbortSignal;
  /** New requests are refused. */
  readonly isClosing: () => boolean;
  readonly reportError: (error: unknown) => void;
}

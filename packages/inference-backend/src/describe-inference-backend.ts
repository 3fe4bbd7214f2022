/** The contract as vitest tests. */
import { afterAll, beforeAll, describe, test } from 'vitest';
import { inferenceChecks } from './checks.js';
import type { InferenceBackend } from './contract.js';

export interface DescribeInferenceBackendOptions {
  readonly name: string;
  /** Called once, before the tests. */
  create(): Promise<InferenceBackend>;
  /** Called after them. */
  dispose?(): Promise<void>;
  /** A text that the model continues with at least 12 tokens. Default: the beginning of a story. */
  readonly prompt?: string;
}

/** Declares the tests that every backend must pass. */
export function describeInferenceBackend(options: DescribeInferenceBackendOptions): void {
  const { prompt = 'The old man looked at the sea and' } = options;
  describe(`${options.name} as an inference backend`, () => {
    let backend: InferenceBackend;
    beforeAll(async () => {
      backend = await options.create();
    });
    afterAll(async () => options.dispose?.());
    for (const { name, run } of inferenceChecks) test(name, () => run(backend, prompt));
  });
}

/** The demo model, loaded once per test file. */
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel, type Model } from '@winnow/engine';
import { afterAll, beforeAll } from 'vitest';

/** Registers hooks that load the model before the tests and dispose it afterwards. */
export function useDemoModel(): () => Model {
  let model: Model | undefined;
  beforeAll(async () => {
    model = await loadModel(demoModelUrl, { context: 1024, maxSessions: 4, kvCache: { capacity: 4096 }, threads: 1 });
  });
  afterAll(async () => {
    await model?.dispose();
  });
  return () => model as Model;
}

/** Short and deterministic. */
export const short = { temperature: 0, maxTokens: 8 } as const;

/** The suite on the demo model, on both backends. */
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel, type Model } from '@winnow/engine';
import { createReferenceBackend } from '@winnow/ops';
import { createInferenceBackend } from '../src/index.js';
import { describeInferenceBackend } from '../src/testing.js';

for (const [name, backendOf] of [
  ['the WebAssembly backend', () => ({ threads: 2 })],
  ['the reference backend', () => ({ backend: createReferenceBackend() })],
] as const) {
  let model: Model;
  describeInferenceBackend({
    name,
    async create() {
      model = await loadModel(demoModelUrl, { context: 128, ...backendOf() });
      return createInferenceBackend(model);
    },
    dispose: () => model.dispose(),
  });
}

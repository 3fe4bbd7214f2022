import { demoModelUrl } from '@winnow/demo-model';
import { loadModel } from '@winnow/engine';

const model = await loadModel(demoModelUrl, { threads: Number(process.argv[2]) });
const { text } = await model.generate('The old man looked at the sea and', { maxTokens: 20, temperature: 0 }).result();
await model.dispose();
console.log(JSON.stringify(text));

import { demoModelUrl } from '@winnow/demo-model';
import { loadModel } from '@winnow/engine';
import { createServer } from '@winnow/server';

const model = await loadModel(demoModelUrl);
const server = await createServer({ models: [{ id: 'demo', model }] });
const url = await server.listen({ port: 0 });
const response = await fetch(new URL('/v1/completions', url), {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ prompt: 'The old man looked at the sea and', max_tokens: 20, temperature: 0 }),
});
const { choices } = await response.json();
await server.close();
await model.dispose();
console.log(JSON.stringify(choices[0].text));

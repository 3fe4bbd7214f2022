import { demoModelUrl } from '@winnow/demo-model';
import { loadModel } from '@winnow/engine';

export async function generate() {
  const model = await loadModel(demoModelUrl);
  const { text } = await model
    .generate('The old man looked at the sea and', { maxTokens: 20, temperature: 0 })
    .result();
  await model.dispose();
  await checkError();
  return text;
}

/** Minifiers shorten the names of classes, but not those of errors. */
async function checkError() {
  const { name, code } = await loadModel(demoModelUrl, { contxt: 1 }).catch((error) => error);
  if (name !== 'UnknownOptionError' || code !== 'argument') throw new Error(`unexpected error ${name}, ${code}`);
}

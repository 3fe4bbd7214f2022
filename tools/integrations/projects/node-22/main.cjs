const { demoModelUrl } = require('@winnow/demo-model');
const { loadModel } = require('@winnow/engine');

async function main() {
  const model = await loadModel(demoModelUrl);
  const { text } = await model
    .generate('The old man looked at the sea and', { maxTokens: 20, temperature: 0 })
    .result();
  await model.dispose();
  console.log(JSON.stringify(text));
}

void main();

import { generate } from './generate.js';

document.querySelector('output').textContent = await generate();

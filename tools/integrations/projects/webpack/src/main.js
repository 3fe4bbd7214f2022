import { generate } from './generate.js';

console.log(JSON.stringify(await generate()));

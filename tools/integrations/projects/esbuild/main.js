import { generate } from './generate.js';

generate().then((text) => console.log(JSON.stringify(text)));

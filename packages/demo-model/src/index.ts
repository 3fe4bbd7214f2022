export { demoModelUrl } from './demo-model.js';

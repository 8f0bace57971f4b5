// A step for a shared library (vars/memgate.groovy):
//   memgate('ctest --test-dir build --output-on-failure')
def call(String command = '') {
    try {
        sh "memgate run ${command ? '-- ' + command : ''}"
    } finally {
        sh 'memgate report --format junit > memgate-junit.xml'
        junit testResults: 'memgate-junit.xml', allowEmptyResults: true
        archiveArtifacts artifacts: '.memgate/latest/**', allowEmptyArchive: true
    }
}
